show:
  test.configurable_test_state:
    - changes: True
    - result: yes
    - comment: 'mode 0644, not 420'

file-mode:
  file.managed:
    - name: /sandbox/mode
    - mode: 0644
    - contents: 0123
    - contents_newline: no

nothing:
  test.configurable_test_state:
    - changes: off
    - result: True
    - comment: 2024-01-31

data:
  file.serialize:
    - name: /sandbox/data.yaml
    - serializer: yaml
    - dataset:
        int: 1_000
        octal: 010
        hex: 0x1F
        text: 1e3
        float: 1.5
        minutes: 1:30
        none: ~
        list: [1, two, 3.0, no]
        date: 2001-12-14
        5: five
        quoted: "5"
