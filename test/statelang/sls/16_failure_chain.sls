breaks:
  test.fail_without_changes: []

depends:
  test.nop:
    - require:
      - test: breaks

independent:
  test.nop: []

rescue:
  cmd.run:
    - name: echo rescued
    - onfail:
      - test: breaks

no-rescue:
  cmd.run:
    - name: echo not needed
    - onfail:
      - test: independent
