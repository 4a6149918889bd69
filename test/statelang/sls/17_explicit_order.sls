zz-late:
  test.nop:
    - order: last

mm-middle:
  test.nop: []

ff-first:
  test.nop:
    - order: 1

nn-next:
  test.nop: []

ee-early:
  test.nop:
    - order: first

aa-almost-last:
  test.nop:
    - order: -1
