setup-script:
  cmd.run:
    - name: |
        set -eu
        for name in one two three; do
          printf '%s\n' "$name: ${name%o}" >> /sandbox/list
        done
        test "$(wc -l < /sandbox/list)" -eq 3
    - shell: /bin/sh
    - env:
      - LC_ALL: C.UTF-8
      - COUNT: '3'

folded:
  cmd.run:
    - name: >-
        printf
        folded
        > /sandbox/folded
    - creates:
      - /sandbox/folded
