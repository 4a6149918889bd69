package state_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/state"
)

// ordinary gives about n bytes of states as people write them.
func ordinary(n int) []byte {
	var b strings.Builder
	b.WriteString("# States of an Odoo server\n")
	for i := 0; ; i++ {
		var s strings.Builder
		fmt.Fprintf(&s, "\n# service %d\napp%d:\n  pkg.installed:\n    - pkgs:\n      - nginx\n      - python3-venv\n      - libpq-dev\n    - refresh: True\n    - cache_valid_time: 3600\n", i, i)
		fmt.Fprintf(&s, "  file.managed:\n    - name: /etc/app%d/app.conf\n    - user: root\n    - group: root\n    - mode: \"0644\"\n    - makedirs: true\n    - contents: |\n        [main]\n        workers = %d\n        log = /var/log/app%d.log\n        # tuned by hand\n        ratio = 0.75\n    - require:\n      - pkg: app%d\n", i, i%16, i, i)
		fmt.Fprintf(&s, "  service.running:\n    - enable: yes\n    - reload: no\n    - watch:\n      - file: app%d\n  cmd.run:\n    - name: 'systemctl is-active app%d && curl -fsS \"http://127.0.0.1:80%02d/health?full=1\"'\n    - onlyif:\n      - test -f /etc/app%d/app.conf\n    - unless: \"pgrep -x app%d\"\n    - retry: {attempts: 3, interval: 5}\n    - env:\n      - LANG: C.UTF-8\n      - RATIO: 1.5\n", i, i, i, i, i)
		if b.Len()+s.Len() > n {
			return []byte(b.String())
		}
		b.WriteString(s.String())
	}
}

// The whole way of a source: parsed, checked, digested and converted. With
// ODUFLOW_BENCH_SOURCE set, the source is also written there for the
// comparison with Salt's loader.
func BenchmarkOrdinary64K(b *testing.B) {
	source := ordinary(state.MaxSourceBytes)
	source = append(source, []byte("# "+strings.Repeat("-", max(0, state.MaxSourceBytes-len(source)-3))+"\n")...)
	if path := os.Getenv("ODUFLOW_BENCH_SOURCE"); path != "" {
		if err := os.WriteFile(path, source, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	benchmarkSource(b, source)
}

// Cost is linear in size: compare these with the one above.
func BenchmarkOrdinary32K(b *testing.B) { benchmarkSource(b, ordinary(state.MaxSourceBytes/2)) }
func BenchmarkOrdinary8K(b *testing.B)  { benchmarkSource(b, ordinary(state.MaxSourceBytes/8)) }

func benchmarkSource(b *testing.B, source []byte) {
	b.Helper()
	b.SetBytes(int64(len(source)))
	b.ReportAllocs()
	for b.Loop() {
		d, errs := state.Parse(source)
		if len(errs) > 0 {
			b.Fatal(errs[0])
		}
		high, err := d.High()
		if err != nil || d.Digest() == "" {
			b.Fatal(err)
		}
		if _, err := high.MarshalJSON(); err != nil {
			b.Fatal(err)
		}
	}
}
