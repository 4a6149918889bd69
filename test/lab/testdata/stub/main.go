// Command stub stands in for masterd, minion-executor and custom where only the lab is tested. It
// takes masterd's command lines, and its serve needs from the lab all that masterd needs: the
// configurations, the login's key, the bus, the folders and the certificate.
package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stub:", err)
		os.Exit(1)
	}
}

func option(args []string, name string) string {
	for i, a := range args {
		if a == "--"+name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("no command")
	}
	config := option(args, "config")
	switch strings.Join(args[:min(2, len(args))], " ") {
	case "init --config":
		c, err := read(config)
		if err != nil {
			return err
		}
		return errors.Join(
			os.WriteFile(c.Database, []byte("receipts"), 0o600),
			os.WriteFile(c.Keys.Signing, []byte("signing"), 0o600),
			os.WriteFile(option(args, "public-key-out"), []byte("public\n"), 0o600),
		)
	case "executors keygen":
		out := option(args, "out")
		return errors.Join(os.WriteFile(out, []byte("key"), 0o600), os.WriteFile(out+".pub", []byte("pub"), 0o600))
	case "executors sign":
		if _, err := os.ReadFile(option(args, "key")); err != nil {
			return err
		}
		dir := option(args, "dir")
		if _, err := os.Stat(filepath.Join(dir, "plugins", "custom")); err != nil {
			return err
		}
		return errors.Join(
			os.WriteFile(filepath.Join(dir, "manifest.json"), []byte("{}"), 0o644),
			os.WriteFile(filepath.Join(dir, "manifest.sig"), []byte("sig"), 0o644),
		)
	case "token create":
		fmt.Printf("token-%s-%s\n", option(args, "scope"), option(args, "name"))
		return nil
	case "serve --config":
		return serve(config)
	}
	if args[0] == "adopt" {
		fmt.Println("adopted", args[1], option(args, "instance"))
		return nil
	}
	return fmt.Errorf("unknown command %q", args)
}

type settings struct {
	Listen struct {
		Unix string
		TLS  struct{ Address, Certificate, Key string }
	}
	Database string
	Keys     struct{ Signing, Secret string }
	Salt     struct{ Config, User string }
	Extra    string
}

func read(path string) (settings, error) {
	var c settings
	raw, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	return c, yaml.Unmarshal(raw, &c)
}

func serve(path string) error {
	c, err := read(path)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(c.Salt.Config)
	if err != nil {
		return err
	}
	var master struct {
		Cachedir string
		SockDir  string         `yaml:"sock_dir"`
		ACL      map[string]any `yaml:"publisher_acl"`
	}
	if err := yaml.Unmarshal(raw, &master); err != nil {
		return err
	}
	if master.ACL[c.Salt.User] == nil {
		return fmt.Errorf("no publisher_acl for %s", c.Salt.User)
	}
	if _, err := os.ReadFile(filepath.Join(master.Cachedir, "."+c.Salt.User+"_key")); err != nil {
		return err
	}
	bus, err := net.Dial("unix", filepath.Join(master.SockDir, "master_event_pub.ipc"))
	if err != nil {
		return err
	}
	defer func() { _ = bus.Close() }()
	if _, err := os.ReadFile(c.Database); err != nil {
		return err
	}
	_ = os.Remove(c.Listen.Unix)
	socket, err := net.Listen("unix", c.Listen.Unix)
	if err != nil {
		return err
	}
	if err := os.Chmod(c.Listen.Unix, 0o660); err != nil {
		return err
	}
	handler := http.NewServeMux()
	handler.HandleFunc("GET /v1/health", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "stub %s\n", c.Extra)
	})
	failed := make(chan error, 2)
	go func() { failed <- http.Serve(socket, handler) }()
	go func() {
		failed <- http.ListenAndServeTLS(c.Listen.TLS.Address, c.Listen.TLS.Certificate, c.Listen.TLS.Key, handler)
	}()
	return <-failed
}
