package httpapi

import (
	"net"
	"testing"
)

// Whoever has an IPv6 network has each of its addresses.
func TestAddressOf(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7:1": "192.0.2.7/32", "192.0.2.8:1": "192.0.2.8/32", "[::ffff:192.0.2.7]:2": "192.0.2.7/32",
		"[2001:db8:1:2:3::4]:1": "2001:db8:1:2::/64", "[2001:db8:1:2::]:9": "2001:db8:1:2::/64", "[2001:db8:1:3::]:9": "2001:db8:1:3::/64",
		"[fe80::1%lo]:9": "fe80::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		if got := addressOf(a).String(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
