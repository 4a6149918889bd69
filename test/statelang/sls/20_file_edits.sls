sysctl:
  file.managed:
    - name: /sandbox/etc/sysctl.conf
    - makedirs: True
    - contents: |
        # kernel
        net.ipv4.ip_forward = 0

forward:
  file.replace:
    - name: /sandbox/etc/sysctl.conf
    - pattern: '^net\.ipv4\.ip_forward\s*=.*$'
    - repl: net.ipv4.ip_forward = 1
    - require:
      - file: sysctl

append:
  file.append:
    - name: /sandbox/etc/sysctl.conf
    - text:
      - vm.swappiness = 10
      - "fs.file-max = 100000"
    - require:
      - file: forward

line:
  file.line:
    - name: /sandbox/etc/sysctl.conf
    - content: vm.swappiness = 20
    - match: vm.swappiness
    - mode: replace
    - require:
      - file: append
