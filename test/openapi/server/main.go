// Command server is masterd's API with nothing behind it: the real handler,
// sockets and TLS of internal/httpapi over a Service that only remembers. The
// tests of docs/openapi.yaml, of the Python client and of the Salt runner call
// it. It prints one JSON line with what a client needs, and ends when its
// standard input does.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	dir := flag.String("dir", "", "an empty folder for the socket, the certificate and the log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	log, err := os.OpenFile(filepath.Join(*dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	memory := newMemory(time.Now)
	texts := map[string]string{}
	for _, scope := range token.Scopes() {
		text, t, err := memory.create(scope, "test")
		if err != nil {
			return err
		}
		texts[string(t.Scope)] = text
	}
	server := httpapi.New(httpapi.Config{
		Service: memory, Operator: memory, Tokens: memory, Now: time.Now,
		Logger: hclog.New(&hclog.LoggerOptions{Output: log, JSONFormat: true, Level: hclog.Debug}),
		Lab:    true, OwnUID: uint32(os.Getuid()),
	})
	certificate, key, err := writeCertificate(*dir)
	if err != nil {
		return err
	}
	tcp, err := server.ListenTLS(ctx, "127.0.0.1:0", certificate, key)
	if err != nil {
		return err
	}
	socket := filepath.Join(*dir, "run", "masterd.sock")
	unix, err := server.ListenUnix(ctx, socket)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	for _, l := range []net.Listener{tcp, unix} {
		go func() { ended <- server.Serve(ctx, l) }()
	}
	plain, err := forward(ctx, socket)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{
		"url": "https://" + tcp.Addr().String(), "ca": certificate, "socket": socket, "socket_url": "http://" + plain, "tokens": texts,
		"log": log.Name(),
	}); err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	return <-ended
}

// forward lets tools that know no Unix sockets call this one, as this process.
func forward(ctx context.Context, socket string) (address string, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
					_ = pair[1].Close()
				}()
			}
		}
	}()
	return l.Addr().String(), nil
}

func writeCertificate(dir string) (certificate, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "masterd"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	certificate, key = filepath.Join(dir, "masterd.crt"), filepath.Join(dir, "masterd.key")
	for path, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		var b bytes.Buffer
		if err := pem.Encode(&b, block); err != nil {
			return "", "", err
		}
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			return "", "", err
		}
	}
	return certificate, key, nil
}
