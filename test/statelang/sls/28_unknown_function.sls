known:
  test.nop: []

unknown:
  nosuchmodule.nosuchfunction:
    - arg: 1

typo:
  file.mangaed:
    - name: /sandbox/typo

after:
  test.nop:
    - require:
      - test: known
