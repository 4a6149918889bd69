restart-later:
  service.running:
    - name: app
    - listen:
      - file: app-conf

app-conf:
  file.managed:
    - name: /sandbox/etc/app.conf
    - makedirs: True
    - contents: listen = 8080

last-thing:
  test.nop:
    - require:
      - file: app-conf
