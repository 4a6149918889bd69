changes:
  test.succeed_with_changes: []

quiet:
  test.succeed_without_changes: []

on-change:
  cmd.run:
    - name: echo changed
    - onchanges:
      - test: changes

on-quiet:
  cmd.run:
    - name: echo quiet
    - onchanges:
      - test: quiet

on-any:
  cmd.run:
    - name: echo any
    - onchanges_any:
      - test: quiet
      - test: changes
