"  spaced  ":
  test.succeed_with_changes:
    - names:
      - " lead"
      - "trail "
      - "two\nlines\n"
      - ""
      - "é"
      - "e\u0301"
      - x: [{order: last}]
      - y: [{order: 1}, {failhard: true}]
      - "*"
