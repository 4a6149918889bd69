directories:
  file.directory:
    - names:
      - /sandbox/srv/a
      - /sandbox/srv/b
      - /sandbox/srv/a
      - /sandbox/srv/c:
        - mode: '0700'
      - /sandbox/srv/d:
        - mode: '0711'
        - require:
          - file: /sandbox/srv/c
    - makedirs: True
    - mode: '0755'
