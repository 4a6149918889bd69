graceful-down:
  cmd.run:
    - name: echo down
    - prereq:
      - file: site-code

site-code:
  file.managed:
    - name: /sandbox/srv/site/index.html
    - makedirs: True
    - contents: new version

graceful-up:
  cmd.run:
    - name: echo up
    - onchanges:
      - file: site-code
