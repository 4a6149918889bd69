config:
  file.managed:
    - name: /sandbox/etc/by-name.conf
    - makedirs: True
    - contents: by name

uses-name:
  cmd.run:
    - name: cat /sandbox/etc/by-name.conf
    - require:
      - file: /sandbox/etc/by-name.conf

uses-pattern:
  test.nop:
    - require:
      - file: /sandbox/etc/by-*
