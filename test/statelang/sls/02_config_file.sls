/sandbox/etc/app:
  file.directory:
    - mode: 0755
    - makedirs: True

/sandbox/etc/app/app.conf:
  file.managed:
    - mode: '0640'
    - contents: |
        [main]
        workers = 4
        ratio = 0.75
        # comment: kept, since this is text
        path = "/srv/app"
    - require:
      - file: /sandbox/etc/app
