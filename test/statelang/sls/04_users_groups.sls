deploy-group:
  group.present:
    - name: deploy
    - gid: 2001
    - system: no

deploy-user:
  user.present:
    - name: deploy
    - uid: 2001
    - shell: /bin/bash
    - home: /home/deploy
    - groups:
      - deploy
      - www-data
    - require:
      - group: deploy-group
