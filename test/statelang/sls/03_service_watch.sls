nginx:
  pkg.installed: []
  file.managed:
    - name: /sandbox/etc/nginx/nginx.conf
    - makedirs: true
    - contents:
      - worker_processes 2;
      - 'events { worker_connections 512; }'
    - require:
      - pkg: nginx
  service.running:
    - enable: yes
    - reload: on
    - watch:
      - file: nginx
