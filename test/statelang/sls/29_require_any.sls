bad:
  test.fail_without_changes: []
good:
  test.succeed_with_changes: []
either:
  test.nop:
    - require_any:
      - test: bad
      - test: good
watch-either:
  service.running:
    - name: either
    - watch_any:
      - test: bad
      - test: good
both:
  cmd.run:
    - name: echo both
    - onfail_any:
      - test: bad
      - test: good
