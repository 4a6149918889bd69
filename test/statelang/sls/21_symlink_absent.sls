target:
  file.managed:
    - name: /sandbox/opt/app-1.2/bin/app
    - makedirs: yes
    - mode: "0755"
    - contents: |-
        #!/bin/sh
        echo "$#" "$@"

/sandbox/opt/app:
  file.symlink:
    - target: /sandbox/opt/app-1.2
    - require:
      - file: target

/sandbox/opt/old:
  file.absent: []

/sandbox/opt/stamp:
  file.touch: []
