größe:
  file.managed:
    - name: /sandbox/größe/日本 語.txt
    - makedirs: true
    - contents: "naïve café — 100 % ☕\n\ttab"
    - encoding: utf-8

say:
  cmd.run:
    - name: 'echo "größe: 5"'
    - require:
      - file: größe
