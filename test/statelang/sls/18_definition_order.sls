zz:
  test.nop: []
mm:
  cmd.run:
    - name: 'true'
aa:
  test.succeed_with_changes: []
kk:
  test.nop: []
  cmd.run:
    - name: echo k
bb:
  test.nop: []
