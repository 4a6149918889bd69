z:
  test.nop:
    - order: 5.5
y:
  test.nop:
    - order: -1
x:
  test.nop:
    - order: -3
w:
  test.nop:
    - order: last
v:
  test.nop:
    - order: first
u:
  test.nop: []
t:
  test.nop:
    - order: 0
s:
  test.nop:
    - order: 10000
r:
  test.nop: []
