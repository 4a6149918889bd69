# three states, run in the order they are written
welcome:
  file.managed:
    - name: %[1]s
    - contents: Welcome to a server that Odoo looks after.

readable:
  file.exists:
    - name: %[1]s
    - require:
      - file: welcome

note that it ran:
  cmd.run:
    - name: touch %[1]s.ran
