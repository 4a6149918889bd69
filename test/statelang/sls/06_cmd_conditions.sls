marker:
  cmd.run:
    - name: echo made > /sandbox/marker
    - unless: test -f /sandbox/marker

again:
  cmd.run:
    - name: echo again >> /sandbox/marker
    - onlyif:
      - test -f /sandbox/marker
      - grep -q made /sandbox/marker
    - require:
      - cmd: marker

never:
  cmd.run:
    - name: echo never > /sandbox/never
    - onlyif: test -f /sandbox/missing

created:
  cmd.run:
    - name: touch /sandbox/created
    - creates: /sandbox/created
