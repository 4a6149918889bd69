install:
  pkg.installed:
    - name: redis
    - require_in:
      - service: run-redis

conf:
  file.managed:
    - name: /sandbox/etc/redis.conf
    - makedirs: True
    - contents: maxmemory 64mb
    - watch_in:
      - service: run-redis

run-redis:
  service.running:
    - name: redis
    - enable: True

also:
  test.succeed_with_changes:
    - onchanges_in:
      - cmd: report
    - listen_in:
      - service: run-redis

report:
  cmd.run:
    - name: echo report
