package manifest_test

import "encoding/base64"

func base64Text(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }
