third:
  test.succeed_with_changes:
    - require:
      - test: second

second:
  test.nop:
    - require:
      - test: first

first:
  test.succeed_without_changes: []
