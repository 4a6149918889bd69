# Each form of each requisite that all versions of Salt understand.
web:
  test.succeed_with_changes:
    - names:
      - web one
      - web two:
        - require: [test: base]
        - onchanges: [id: base]
    - parallel: true
    - listen_in:
      - test: last
base:
  test.succeed_with_changes:
    - name: base name
    - require_in: {test: plain}
plain:
  test.nop:
    - require: [web, base name]
    - watch: [test: web*]
    - require_any: [id: web two]
    - onchanges_any: [base]
broken:
  test.fail_with_changes: []
rescue:
  test.nop:
    - onfail_all: [broken, test: broken]
    - onfail_any: [id: broken]
before:
  test.nop:
    - prereq: [test: base name]
in front:
  test.nop:
    - require_in: [base name]
    - use: [test: base]
last:
  test.succeed_without_changes:
    - listen: [base, test: web two]
