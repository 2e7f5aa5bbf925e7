package daemon

import (
	"fmt"
	"io"
	"path/filepath"
)

// banner is what `tandem dev` prints when it is ready: where it is, the key, and lines to paste.
type banner struct {
	url, key  string
	seed      *seed
	simulated bool
	eslAddr   string
	dataDir   string
}

func (b banner) write(w io.Writer) {
	key, keyLine := b.key, b.key
	if key == "" {
		key, keyLine = "$TANDEM_API_KEY", "printed at the first start (`tandem keys create "+b.seed.CustomerID+"` makes another)"
	}
	switchLine := "FreeSWITCH, Event Socket on " + b.eslAddr
	if b.simulated {
		switchLine = "simulated, Event Socket on " + b.eslAddr + "; no phone rings"
	}
	_, _ = fmt.Fprintf(w, `
Tandem is ready.

  API           %[1]s/v1
  OpenAPI       %[1]s/v1/openapi.json
  API key       %[2]s
  switch        %[3]s
  data          %[4]s
  application   %[5]s
  answer_url    %[1]s/dev/answer
  webhook_url   %[1]s/dev/webhooks

Place a call: it rings, is answered, hears a prompt, types 1 2 3 4 and is hung up.

  curl -sS %[1]s/v1/calls -H 'Content-Type: application/json' \
    -H "Authorization: Bearer %[6]s" \
    -d '{"application_id":"%[5]s","from":"%[7]s","to":"%[8]s"}'

Let a call come in, to %[9]s:

  curl -sS %[1]s/dev/call-in -H 'Content-Type: application/json' \
    -d '{"from":"+12025550123","digits":"4321"}'

Run it as an operator, in another terminal:

  tandem context add dev --url %[1]s --token-file %[10]s
  tandem calls watch

What the example is asked and which webhooks arrive is printed below. Stop with Ctrl-C.

`, b.url, keyLine, switchLine, b.dataDir, b.seed.ApplicationID, key, devNumber, devCallee, devDID, filepath.Join(b.dataDir, operatorTokenFile))
}
