before:
  test.succeed_without_changes: []

breaks:
  test.fail_without_changes:
    - failhard: True

after:
  test.succeed_without_changes: []
