template:
  file.managed:
    - name: /sandbox/one
    - mode: '0600'
    - contents: shared
    - makedirs: True

copy:
  file.managed:
    - name: /sandbox/two
    - use:
      - file: template
