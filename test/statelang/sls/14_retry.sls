flaky:
  cmd.run:
    - name: 'test -f /sandbox/second || { touch /sandbox/second; false; }'
    - retry:
        attempts: 3
        interval: 1
        until: True
        splay: 0

steady:
  cmd.run:
    - name: 'true'
    - retry: {attempts: 2, interval: 1}
