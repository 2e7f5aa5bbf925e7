package metrics

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// named finds what looks like the name of one of our metrics in an expression of Prometheus.
var named = regexp.MustCompile(`\b(?:tandem|freeswitch)_[a-z0-9_]+`)

// published are the series that a scrape of everything has, with their labels.
func published(t *testing.T) map[string][]string {
	t.Helper()
	families, err := counted(newWorld(), time.Hour).registry.Gather()
	require.NoError(t, err)
	series := map[string][]string{}
	for _, family := range families {
		var labels []string
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				labels = append(labels, pair.GetName())
			}
		}
		slices.Sort(labels)
		labels = slices.Compact(labels)
		name := family.GetName()
		series[name] = labels
		if family.GetType().String() == "HISTOGRAM" {
			delete(series, name)
			series[name+"_sum"], series[name+"_count"] = labels, labels
			series[name+"_bucket"] = append(slices.Clone(labels), "le")
		}
	}
	return series
}

var (
	selectors = regexp.MustCompile(`\b((?:tandem|freeswitch)_[a-z0-9_]+)\{([^}]*)\}`)
	matchers  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	groupings = regexp.MustCompile(`\bby \(([a-z_, ]+)\)`)
)

// check holds an expression to what is published: each metric exists, and has the labels that are asked of it.
func check(t *testing.T, where, expr string, series map[string][]string) {
	t.Helper()
	var all []string
	for _, name := range named.FindAllString(expr, -1) {
		labels, ok := series[name]
		require.True(t, ok, "%s: nobody publishes %s", where, name)
		all = append(all, labels...)
	}
	for _, selector := range selectors.FindAllStringSubmatch(expr, -1) {
		for _, matcher := range matchers.FindAllStringSubmatch(selector[2], -1) {
			require.Contains(t, series[selector[1]], matcher[1], "%s: %s has no such label", where, selector[1])
		}
	}
	for _, grouping := range groupings.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(grouping[1], ",") {
			require.Contains(t, all, strings.TrimSpace(label), where)
		}
	}
	require.Equal(t, strings.Count(expr, "("), strings.Count(expr, ")"), "%s: brackets of %s", where, expr)
}

// Each metric that the alert rules name exists, and each rule says what happened and what to do.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "docker", "prometheus", "alerts.yaml"))
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	series := published(t)
	seen := map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			require.NotEmpty(t, rule.Expr, rule.Alert)
			require.False(t, seen[rule.Alert], rule.Alert)
			seen[rule.Alert] = true
			check(t, rule.Alert, rule.Expr, series)
			require.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			if rule.For != "" {
				_, err := time.ParseDuration(rule.For)
				require.NoError(t, err, rule.Alert)
			}
		}
	}
	require.Greater(t, len(seen), 20)
}

// place is where a panel lies on the dashboard.
type place struct{ H, W, X, Y int }

func (p place) overlaps(q place) bool {
	return p.X < q.X+q.W && q.X < p.X+p.W && p.Y < q.Y+q.H && q.Y < p.Y+p.H
}

// Each metric that the dashboard names exists, and it has the rows that operators look for.
func TestDashboard(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "docker", "grafana", "tandem.json"))
	require.NoError(t, err)
	var dashboard struct {
		Title  string `json:"title"`
		Panels []struct {
			ID          int    `json:"id"`
			Type        string `json:"type"`
			Title       string `json:"title"`
			Description string `json:"description"`
			GridPos     place  `json:"gridPos"`
			Targets     []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
		Templating struct {
			List []struct {
				Name  string `json:"name"`
				Query string `json:"query"`
			} `json:"list"`
		} `json:"templating"`
	}
	require.NoError(t, json.Unmarshal(raw, &dashboard))
	series := published(t)
	var rows []string
	var places []place
	used, ids := map[string]bool{}, map[int]bool{}
	for _, panel := range dashboard.Panels {
		require.False(t, ids[panel.ID], panel.Title)
		ids[panel.ID] = true
		for _, before := range places {
			require.False(t, panel.GridPos.overlaps(before), "%s lies on another panel", panel.Title)
		}
		places = append(places, panel.GridPos)
		require.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, panel.Title)
		if panel.Type == "row" {
			rows = append(rows, panel.Title)
			continue
		}
		require.NotEmpty(t, panel.Description, panel.Title)
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			check(t, panel.Title, target.Expr, series)
			for _, name := range named.FindAllString(target.Expr, -1) {
				used[name] = true
			}
		}
	}
	require.Equal(t, []string{"Service", "Nodes", "Trunks", "Applications", "Webhooks", "Media"}, rows)
	require.Greater(t, len(used), 25)
	for _, variable := range dashboard.Templating.List {
		if variable.Name == "node" {
			check(t, "the variable node", variable.Query, series)
		}
	}
}

// docs/metrics.md names each metric once, and none that does not exist.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	require.NoError(t, err)
	told := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:tandem|freeswitch)_[a-z0-9_]+)`").FindAllStringSubmatch(string(raw), -1) {
		require.False(t, told[row[1]], row[1])
		told[row[1]] = true
	}
	families, err := counted(newWorld(), time.Hour).registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if named.MatchString(family.GetName()) {
			require.True(t, told[family.GetName()], "docs/metrics.md does not name %s", family.GetName())
			delete(told, family.GetName())
		}
	}
	require.Empty(t, told, "nobody publishes them")
}
