package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tandem/lab"
)

// gateway is the inside of a gateway to the carrier.
func gateway(c *lab.Carrier, password string) string {
	return fmt.Sprintf(`<param name="proxy" value="%s"/><param name="realm" value="%s"/><param name="from-domain" value="%s"/>
<param name="username" value="%s"/><param name="password" value="%s"/><param name="register" value="true"/><param name="retry-seconds" value="5"/>`,
		c.SIPAddr, lab.CarrierRealm, lab.CarrierRealm, lab.CarrierUsername, password)
}

// gateways writes gateway files before a node starts. The switch drops every line that holds an include tag, hence the line ends.
func gateways(files map[string]string) func(string) error {
	return func(confDir string) error {
		for name, inside := range files {
			text := fmt.Sprintf("<include>\n<gateway name=%q>%s</gateway>\n</include>\n", name, inside)
			if err := os.WriteFile(filepath.Join(confDir, "tandem", "gateways", name+".xml"), []byte(text), 0o600); err != nil {
				return err
			}
		}
		return nil
	}
}

// parksEverybody writes an entry that no node of a customer would have: it parks every call.
func parksEverybody(confDir string) error {
	text := `<context name="public"><extension name="all"><condition><action application="park"/></condition></extension></context>` + "\n"
	return os.WriteFile(filepath.Join(confDir, "tandem", "dialplan", "all.xml"), []byte(text), 0o600)
}

func containsTag(xml, tag, value string) bool {
	return strings.Contains(xml, "<"+tag+">"+value+"</"+tag+">")
}

// containsDigits reports whether text holds the digits of a number, however the rest of it is written.
func containsDigits(text, number string) bool {
	return strings.Contains(text, strings.TrimPrefix(number, "+"))
}
