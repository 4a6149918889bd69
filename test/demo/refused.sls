welcome:
  file.managed:
    - name: %[1]s
    - contents: This is {{ grains.id }}
