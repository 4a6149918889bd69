checked:
  cmd.run:
    - name: echo ok > /sandbox/checked
    - check_cmd:
      - grep -q ok /sandbox/checked

fails-check:
  test.succeed_with_changes:
    - check_cmd:
      - test -f /sandbox/not-there
