fine:
  test.succeed_without_changes: []

breaks:
  file.exists:
    - name: %[1]s.missing
    - failhard: true

never reached:
  cmd.run:
    - name: touch %[1]s.never
