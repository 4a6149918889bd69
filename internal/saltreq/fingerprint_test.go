package saltreq_test

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"crypto/rsa"

	"github.com/oduflow/oduflow-salt/internal/saltreq"
)

func TestFingerprint(t *testing.T) {
	text := newKey(t)
	want, err := saltreq.Fingerprint(text)
	if err != nil || len(want) != 64 {
		t.Fatalf("%q, %v", want, err)
	}
	block, _ := pem.Decode([]byte(text))
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(key.(*rsa.PublicKey))}))
	for name, same := range map[string]string{
		"no line break at the end": strings.TrimSpace(text), "CRLF": strings.ReplaceAll(text, "\n", "\r\n"), "PKCS#1": pkcs1,
	} {
		if got, err := saltreq.Fingerprint(same); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if other, _ := saltreq.Fingerprint(newKey(t)); other == want {
		t.Error("two keys with one fingerprint")
	}
	for _, bad := range []string{"", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if got, err := saltreq.Fingerprint(bad); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
