package message_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/message"
)

func TestFingerprintOfEveryForm(t *testing.T) {
	text := publicKeyPEM(t)
	want, err := message.Fingerprint(text)
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
		if got, err := message.Fingerprint(same); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if other, _ := message.Fingerprint(publicKeyPEM(t)); other == want {
		t.Error("two keys with one fingerprint")
	}
	for _, bad := range []string{"", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if got, err := message.Fingerprint(bad); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}

func publicKeyPEM(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
