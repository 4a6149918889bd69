one:
  test.succeed_with_changes: []
two:
  test.nop:
    - require:
      - id: one
three:
  test.nop:
    - require:
      - one
      - two
