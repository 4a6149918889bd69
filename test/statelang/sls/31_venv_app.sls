# A small application, as one would really write it.
app-user:
  user.present:
    - name: app
    - system: True
    - createhome: False

app-dirs:
  file.directory:
    - names:
      - /sandbox/opt/app
      - /sandbox/var/log/app
    - makedirs: True
    - require:
      - user: app-user

app-env:
  file.managed:
    - name: /sandbox/opt/app/env
    - mode: '0600'
    - contents:
      - PORT=8080
      - WORKERS=4
    - require:
      - file: app-dirs

app-unit:
  file.managed:
    - name: /sandbox/etc/systemd/system/app.service
    - makedirs: True
    - contents: |
        [Unit]
        Description=App
        After=network-online.target

        [Service]
        User=app
        EnvironmentFile=/opt/app/env
        ExecStart=/opt/app/bin/app --port ${PORT} --name=%i
        Restart=on-failure

        [Install]
        WantedBy=multi-user.target

reload-units:
  cmd.run:
    - name: echo daemon-reload
    - onchanges:
      - file: app-unit

app:
  service.running:
    - enable: True
    - require:
      - cmd: reload-units
    - watch:
      - file: app-env
      - file: app-unit
