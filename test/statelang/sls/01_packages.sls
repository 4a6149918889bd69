# Base packages of every server.
base-packages:
  pkg.installed:
    - pkgs:
      - curl
      - git
      - vim
      - python3-venv
    - refresh: True

no-telnet:
  pkg.removed:
    - name: telnet
