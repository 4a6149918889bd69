package saltreq

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// row is a row as the kernel prints it on a little-endian machine.
func row(local, remote, state string, uid int, inode int) string {
	return fmt.Sprintf("   0: %s %s %s 00000000:00000000 00:00000000 00000000 %5d        0 %d 1 0000000000000000 100 0 0 10 0\n", local, remote, state, uid, inode)
}

const (
	any4  = "00000000:119A"
	lo4   = "0100007F:119A"
	lo42  = "0200007F:119A"
	none4 = "00000000:0000"
	any6  = "00000000000000000000000000000000:119A"
	none6 = "00000000000000000000000000000000:0000"
	map6  = "0000000000000000FFFF00000100007F:119A"
	us4   = "0100007F:9C40"
	us6   = "0000000000000000FFFF00000100007F:9C40"
)

func procWith(t *testing.T, tcp, tcp6 string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"tcp": tcp, "tcp6": tcp6} {
		if err := os.WriteFile(filepath.Join(root, "net", name), []byte(head+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// «A listener on 4506 that isn't the master's is not given the key.»
func TestCheckListener(t *testing.T) {
	allowed := owners{0: true, 150: true}
	cases := []struct {
		name, tcp, tcp6 string
		want            error
	}{
		{"the master's user on all addresses", row(any4, none4, "0A", 150, 7), "", nil},
		{"root on loopback", row(lo4, none4, "0A", 0, 7), "", nil},
		{"the master's user, dual stack", "", row(any6, none6, "0A", 150, 7), nil},
		{"nobody", "", "", errNobody},
		{"another user", row(any4, none4, "0A", 1000, 7), "", errForeign},
		{"another user on loopback", row(lo4, none4, "0A", 1000, 7), "", errForeign},
		{"another user, dual stack", "", row(any6, none6, "0A", 1000, 7), errForeign},
		{"another user beside the master", row(any4, none4, "0A", 150, 7) + row(lo4, none4, "0A", 1000, 8), "", errForeign},
		{"another user on another address", row(lo4, none4, "0A", 150, 7) + row(lo42, none4, "0A", 1000, 8), "", nil},
		{"only another address", row(lo42, none4, "0A", 150, 7), "", errNobody},
		{"only another port", row("00000000:1199", none4, "0A", 150, 7), "", errNobody},
		{"only connections", row(lo4, us4, "01", 150, 7), "", errNobody},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := checkListener(procWith(t, c.tcp, c.tcp6), netip.MustParseAddrPort("127.0.0.1:4506"), allowed)
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// What the key depends on: the row of the socket that accepted us.
func TestCheckPeer(t *testing.T) {
	allowed := owners{0: true, 150: true}
	listen := row(any4, none4, "0A", 150, 7)
	cases := []struct {
		name, tcp, tcp6 string
		want            error
	}{
		{"the master's", listen + row(us4, lo4, "01", 999, 9) + row(lo4, us4, "01", 150, 8), "", nil},
		{"the master's, dual stack", row(us4, lo4, "01", 999, 9), row(map6, us6, "01", 0, 8), nil},
		{"swapped after the look at the listener", listen + row(lo4, us4, "01", 1000, 8), "", errForeign},
		{"in the backlog of anybody: uid 0, no inode", listen + row(lo4, us4, "01", 0, 0), "", errUnseen},
		{"closing", listen + row(lo4, us4, "08", 150, 8), "", errUnseen},
		{"not here", listen + row(us4, lo4, "01", 150, 9), "", errUnseen},
		{"another connection", listen + row(lo4, "0100007F:9C41", "01", 150, 8), "", errUnseen},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := checkPeer(procWith(t, c.tcp, c.tcp6), netip.MustParseAddrPort("127.0.0.1:40000"),
				netip.MustParseAddrPort("127.0.0.1:4506"), allowed)
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestProcThatCannotBeRead(t *testing.T) {
	addr := netip.MustParseAddrPort("127.0.0.1:4506")
	if err := checkListener(t.TempDir(), addr, owners{0: true}); err == nil {
		t.Error("no /proc was taken for an answer")
	}
	for _, text := range []string{"garbage\n", row("xx:119A", none4, "0A", 0, 1), row("0000:119A", none4, "0A", 0, 1),
		strings.Replace(row(any4, none4, "0A", 0, 77), " 77 ", " -1 ", 1), row(any4, "00000000", "0A", 0, 1)} {
		if err := checkListener(procWith(t, text, ""), addr, owners{0: true}); err == nil || errors.Is(err, errNobody) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseRow(f *testing.F) {
	f.Add(row(any4, none4, "0A", 150, 7))
	f.Add(row(map6, us6, "01", 0, 8))
	f.Fuzz(func(_ *testing.T, line string) { _, _ = parseRow(line) })
}
