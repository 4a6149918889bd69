a-pkg:
  pkg.installed:
    - name: alpha
    - aggregate: False

b-pkg:
  pkg.installed:
    - name: beta
    - version: 1.10

masked:
  cmd.run:
    - name: touch /sandbox/masked && stat -c %a /sandbox/masked
    - umask: 077
    - stateful: false
    - hide_output: False
