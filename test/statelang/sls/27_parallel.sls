slow-one:
  cmd.run:
    - name: sleep 0.3; echo one
    - parallel: True

slow-two:
  cmd.run:
    - name: sleep 0.2; echo two
    - parallel: True

joined:
  test.nop:
    - require:
      - cmd: slow-one
      - cmd: slow-two
