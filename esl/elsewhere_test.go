package esl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSentElsewhere(t *testing.T) {
	t.Parallel()
	app, err := Deflect("sip:+15550100@pbx.example:5080;transport=tcp")
	require.NoError(t, err)
	require.Equal(t, []string{"deflect", "<sip:+15550100@pbx.example:5080;transport=tcp>"}, []string{app.Name(), app.Args()})
	app, err = RedirectApp("SIP:anna@pbx.example")
	require.NoError(t, err)
	require.Equal(t, []string{"redirect", "sip:anna@pbx.example"}, []string{app.Name(), app.Args()})
	for _, uri := range []string{"", "+15550100", "sip:a@b,sip:c@d", "sip:a@b USER_BUSY", "sip:a@b>;x=<", "sip:${x}@b", "sip:a@b?Replaces=x", "sip:a@b\r\nX: y"} {
		_, err := Deflect(uri)
		require.ErrorIs(t, err, ErrRefusedInput, uri)
		_, err = RedirectApp(uri)
		require.ErrorIs(t, err, ErrRefusedInput, uri)
	}
}
