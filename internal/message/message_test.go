package message_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/crypto/ssh"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

type pair struct {
	key     *rsa.PrivateKey
	public  string
	private []byte
}

func newPair() pair {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		panic(err)
	}
	return pair{
		key:     key,
		public:  string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		private: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}
}

var (
	web1  = sync.OnceValue(newPair)
	other = sync.OnceValue(newPair)
)

func signingKey(fill byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{fill}, ed25519.SeedSize))
}

func opener() message.Opener {
	return message.Opener{Target: "web1", Pinned: signingKey(1).Public().(ed25519.PublicKey), MinionKeyPEM: web1().private}
}

func sample(kind message.Kind) message.Message {
	body, err := message.EncodeBody(message.Body{ResultKey: bytes.Repeat([]byte{7}, message.ResultKeySize), Profile: "custom", Canonical: []byte(`{"version":1}`)})
	if err != nil {
		panic(err)
	}
	return message.Message{
		Protocol: message.Protocol, Kind: kind, Target: "web1", Instance: "i", Request: "r", Ticket: "t", Digest: "d",
		Nonce: strings.Repeat("ab", message.NonceSize), Body: body,
	}
}

func seal(t testing.TB, m message.Message, key ed25519.PrivateKey, to pair) string {
	t.Helper()
	text, err := message.Seal(m, key, to.public)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func expectCode(t *testing.T, err error, code problem.Code) {
	t.Helper()
	if problem.CodeOf(err) != code {
		t.Errorf("the error is %v, expected %s", err, code)
	}
}

func TestSealOpen(t *testing.T) {
	for _, kind := range []message.Kind{message.Prepare, message.Start, message.Evidence, message.Settle, message.Update} {
		m := sample(kind)
		got, err := opener().Open(seal(t, m, signingKey(1), web1()), kind)
		if err != nil {
			t.Fatal(err)
		}
		if got.Kind != kind || got.Target != m.Target || got.Instance != m.Instance || got.Request != m.Request ||
			got.Ticket != m.Ticket || got.Digest != m.Digest || got.Nonce != m.Nonce || got.Protocol != m.Protocol || !bytes.Equal(got.Body, m.Body) {
			t.Errorf("%s: opened %+v", kind, got)
		}
		b, err := message.DecodeBody(got.Body)
		if err != nil || b.Profile != "custom" || string(b.Canonical) != `{"version":1}` || b.Fence {
			t.Errorf("%s: body %+v, %v", kind, b, err)
		}
	}
}

// Invariant 7: what travels holds nothing readable, and two seals differ.
func TestSealedTextIsOpaque(t *testing.T) {
	m := sample(message.Start)
	one, two := seal(t, m, signingKey(1), web1()), seal(t, m, signingKey(1), web1())
	if one == two {
		t.Error("a message seals to the same text twice")
	}
	raw, err := base64.RawStdEncoding.DecodeString(one)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"web1", "custom", "version", "start", m.Nonce} {
		if strings.Contains(one, word) || bytes.Contains(raw, []byte(word)) {
			t.Errorf("the text shows %q", word)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	good := seal(t, sample(message.Start), signingKey(1), web1())
	withTarget := func(target string) string {
		m := sample(message.Start)
		m.Target = target
		return seal(t, m, signingKey(1), web1())
	}
	withProtocol := func(n int) string {
		m := sample(message.Start)
		m.Protocol = n
		return seal(t, m, signingKey(1), web1())
	}
	flipped := []byte(good)
	flipped[len(flipped)/2] ^= 1
	for _, c := range []struct {
		name string
		text string
		kind message.Kind
		code problem.Code
	}{
		{"another key signed it", seal(t, sample(message.Start), signingKey(2), web1()), message.Start, message.Unsigned},
		{"sealed to another minion", seal(t, sample(message.Start), signingKey(1), other()), message.Start, message.Unreadable},
		{"for another target", withTarget("web2"), message.Start, message.WrongTarget},
		{"for a target in other case", withTarget("WEB1"), message.Start, message.WrongTarget},
		{"at another entry point", good, message.Prepare, message.WrongKind},
		{"flipped", string(flipped), message.Start, message.Unreadable},
		{"cut", good[:len(good)/2/4*4], message.Start, message.Unreadable},
		{"empty", "", message.Start, message.Unreadable},
		{"no base64", "not ours at all", message.Start, message.Unreadable},
		{"too long", strings.Repeat("A", message.MaxMessage+1), message.Start, message.Unreadable},
		{"a newer protocol", withProtocol(message.Protocol + 1), message.Start, message.Unsupported},
		{"an older protocol than N-1", withProtocol(message.MinProtocol - 1), message.Start, message.Unsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := opener().Open(c.text, c.kind)
			expectCode(t, err, c.code)
			if (m != nil) != (c.code == message.Unsupported) {
				t.Errorf("a message comes with %s: %v", c.code, m != nil)
			}
		})
	}
	t.Run("no pinned key", func(t *testing.T) {
		o := opener()
		o.Pinned = nil
		_, err := o.Open(good, message.Start)
		expectCode(t, err, message.Unsigned)
	})
	t.Run("no key of our own", func(t *testing.T) {
		o := opener()
		o.MinionKeyPEM = []byte("x")
		_, err := o.Open(good, message.Start)
		expectCode(t, err, message.Unreadable)
	})
}

// The protocols that this build understands are the newest and the one before.
func TestProtocolSpan(t *testing.T) {
	if message.Protocol-message.MinProtocol > 1 || message.MinProtocol < 1 {
		t.Fatalf("protocols %d to %d", message.MinProtocol, message.Protocol)
	}
	for n := message.MinProtocol; n <= message.Protocol; n++ {
		m := sample(message.Evidence)
		m.Protocol = n
		if _, err := opener().Open(seal(t, m, signingKey(1), web1()), message.Evidence); err != nil {
			t.Errorf("protocol %d: %v", n, err)
		}
	}
}

// sealEnvelope seals any bytes to web1, as anybody with its public key can.
func sealEnvelope(t *testing.T, plain []byte) string {
	t.Helper()
	key, err := ssh.NewPublicKey(&web1().key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	recipient, err := agessh.NewRSARecipient(key)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, recipient)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(plain)
	_ = w.Close()
	return base64.RawStdEncoding.EncodeToString(out.Bytes())
}

// openEnvelope is what a minion could do with a message: open it, change it,
// and seal it anew to itself or another.
func openEnvelope(t *testing.T, text string) []any {
	t.Helper()
	sealed, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := agessh.NewRSAIdentity(web1().key)
	if err != nil {
		t.Fatal(err)
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), identity)
	if err != nil {
		t.Fatal(err)
	}
	var fields []any
	if err := msgpack.NewDecoder(r).Decode(&fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// Each field of the identity is covered by the signature, and bytes can't be
// moved from one field to the next.
func TestTampering(t *testing.T) {
	good := seal(t, sample(message.Start), signingKey(1), web1())
	fields := openEnvelope(t, good)
	names := []string{"protocol", "kind", "target", "instance", "request", "ticket", "digest", "nonce", "body", "signature"}
	if len(fields) != len(names) {
		t.Fatalf("an envelope of %d fields", len(fields))
	}
	try := func(name string, change func(f []any)) {
		t.Run(name, func(t *testing.T) {
			changed := append([]any(nil), fields...)
			change(changed)
			plain, err := msgpack.Marshal(changed)
			if err != nil {
				t.Fatal(err)
			}
			_, err = opener().Open(sealEnvelope(t, plain), message.Start)
			expectCode(t, err, message.Unsigned)
		})
	}
	for i, name := range names {
		try(name, func(f []any) {
			switch v := f[i].(type) {
			case string:
				f[i] = v + "x"
			case []byte:
				changed := append([]byte(nil), v...)
				changed[len(changed)-1] ^= 1
				f[i] = changed
			default:
				f[i] = 2
			}
		})
	}
	try("no signature", func(f []any) { f[9] = []byte{} })
	try("moved bytes", func(f []any) { f[4], f[5] = "rt", "" })
	t.Run("unchanged", func(t *testing.T) {
		plain, err := msgpack.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := opener().Open(sealEnvelope(t, plain), message.Start); err != nil {
			t.Errorf("the harness itself spoils messages: %v", err)
		}
	})
	for name, plain := range map[string][]byte{"no msgpack": []byte("\xc1"), "a string": []byte("\xa1x"), "empty": {}, "short array": []byte("\x91\x01")} {
		t.Run(name, func(t *testing.T) {
			if _, err := opener().Open(sealEnvelope(t, plain), message.Start); err == nil {
				t.Error("it was opened")
			}
		})
	}
}

func TestSizes(t *testing.T) {
	m := sample(message.Start)
	// The largest canonical form fits: 150 KiB.
	b := message.Body{ResultKey: make([]byte, message.ResultKeySize), Canonical: bytes.Repeat([]byte("x"), 150<<10)}
	m.Body, _ = message.EncodeBody(b)
	text := seal(t, m, signingKey(1), web1())
	if len(text) > message.MaxMessage {
		t.Errorf("%d bytes", len(text))
	}
	if _, err := opener().Open(text, message.Start); err != nil {
		t.Error(err)
	}
	b.Canonical = bytes.Repeat([]byte("x"), message.MaxMessage)
	m.Body, _ = message.EncodeBody(b)
	_, err := message.Seal(m, signingKey(1), web1().public)
	expectCode(t, err, problem.TooLarge)
}

func TestSealToNoKey(t *testing.T) {
	small, _ := rsa.GenerateKey(rand.Reader, 1024)
	var smallPEM string
	if small != nil {
		der, _ := x509.MarshalPKIXPublicKey(&small.PublicKey)
		smallPEM = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	public, _, _ := ed25519.GenerateKey(rand.Reader)
	der, _ := x509.MarshalPKIXPublicKey(public)
	for name, key := range map[string]string{
		"nothing": "", "no PEM": "x", "ed25519": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "1024 bits": smallPEM,
	} {
		if _, err := message.Seal(sample(message.Start), signingKey(1), key); problem.CodeOf(err) != problem.KeyChanged {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBody(t *testing.T) {
	for name, raw := range map[string][]byte{"empty": {}, "no map": {0x01}, "no key": {0x80}} {
		_, err := message.DecodeBody(raw)
		if problem.CodeOf(err) != message.Unreadable {
			t.Errorf("%s: %v", name, err)
		}
	}
	short, _ := message.EncodeBody(message.Body{ResultKey: make([]byte, 31)})
	_, err := message.DecodeBody(short)
	expectCode(t, err, message.Unreadable)
}

// Two spellings of one key have one fingerprint; two keys have two.
func TestFingerprint(t *testing.T) {
	pkcs1 := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&web1().key.PublicKey)}))
	a, errA := message.Fingerprint(web1().public)
	b, errB := message.Fingerprint("\n" + pkcs1 + "\n")
	c, errC := message.Fingerprint(other().public)
	if errA != nil || errB != nil || errC != nil || a != b || a == c || len(a) != 64 {
		t.Errorf("%s %s %s %v %v %v", a, b, c, errA, errB, errC)
	}
	if _, err := message.Fingerprint("x"); problem.CodeOf(err) != problem.KeyChanged {
		t.Error(err)
	}
}

// FuzzOpen: whatever comes, Open returns.
func FuzzOpen(f *testing.F) {
	f.Add(seal(f, sample(message.Start), signingKey(1), web1()))
	f.Add("")
	f.Add("YWdlLWVuY3J5cHRpb24ub3JnL3YxCg==")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := opener().Open(text, message.Start)
		if err == nil && m == nil {
			t.Error("neither message nor error")
		}
	})
}
