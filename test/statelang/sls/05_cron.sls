nightly-backup:
  cron.present:
    - name: /usr/local/bin/backup --full > /dev/null 2>&1
    - user: root
    - minute: 30
    - hour: 3
    - identifier: nightly

weekly-report:
  cron.present:
    - name: /usr/local/bin/report
    - user: root
    - special: '@weekly'

old-job:
  cron.absent:
    - name: /usr/local/bin/old
    - user: root
