with-function:
  test.succeed_with_changes:
    - onlyif:
      - fun: test.true
    - unless:
      - fun: test.false

skipped:
  test.succeed_with_changes:
    - unless:
      - fun: file.directory_exists
        args:
          - /sandbox
