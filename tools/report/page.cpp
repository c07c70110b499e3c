#include "tools/report/page.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "tools/report/html.h"
#include "tools/report/line_chart.h"
#include "tools/report/sections.h"
#include "tools/report/summary.h"

namespace tandem::report {

namespace {

/// `text` with every {{name}} replaced by its value, once: values may hold braces.
std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string result;
  while (!text.empty()) {
    const std::size_t open = text.find("{{");
    const std::size_t close = text.find("}}", open);
    if (close == std::string_view::npos) {
      break;
    }
    result += text.substr(0, open);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    for (const auto& [key, value] : values) {
      if (key == name) {
        result += value;
      }
    }
    text.remove_prefix(close + 2);
  }
  return result += text;
}

std::string title(const std::vector<RunData>& runs) {
  return runs.size() == 1 ? runs[0].name : fmt::format("{} runs compared", runs.size());
}

std::string subtitle(const RunData& run) {
  std::string text = layout_text(run);
  for (const char* key : {"precision", "device"}) {
    const std::string value = run.setting(key);
    text += value.empty() ? "" : (text.empty() ? "" : " · ") + value;
  }
  return text;
}

std::string legend(const std::vector<RunData>& runs) {
  if (runs.size() == 1) {
    return fmt::format("<p>{}</p>", escape(subtitle(runs[0])));
  }
  std::string html = "<ul class=\"runs\">";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    html += fmt::format("<li><span class=\"badge r{}\">{}</span> {} <small>{}</small></li>", i,
                        letter(i), escape(runs[i].name), escape(subtitle(runs[i])));
  }
  return html + "</ul>";
}

std::string notes(const std::vector<RunData>& runs) {
  std::string items;
  for (const RunData& run : runs) {
    for (const std::string& note : run.notes) {
      items += fmt::format("<li>{}{}</li>", runs.size() == 1 ? "" : escape(run.name) + ": ",
                           escape(note));
    }
  }
  return items.empty() ? "" : "<ul class=\"notes\">" + items + "</ul>";
}

}  // namespace

std::string page(const std::vector<RunData>& runs, const std::string& hardware) {
  std::string links, body, charts;
  for (const Section& section :
       {warnings_section(runs), training_section(runs), speed_section(runs), time_section(runs),
        traffic_section(runs), memory_section(runs), predicted_section(runs, hardware),
        config_section(runs), environment_section(runs)}) {
    if (section.html.empty()) {
      continue;
    }
    links += fmt::format("<a href=\"#{}\">{}</a> ", section.id, escape(section.title));
    body += fmt::format("<section id=\"{0}\"><h2>{1}</h2>\n{2}</section>\n", section.id,
                        escape(section.title), section.html);
    for (const std::string& chart : section.charts) {
      charts += (charts.empty() ? "" : ",\n") + chart;
    }
  }
  return filled(kPageHtml, {{"title", escape(title(runs))},
                            {"style", kPageCss},
                            {"runs", legend(runs)},
                            {"notes", notes(runs)},
                            {"summary", summary_html(runs)},
                            {"links", links},
                            {"body", body},
                            {"charts", "[" + charts + "]"},
                            {"script", kPageJs},
                            {"version", TANDEM_VERSION}});
}

}  // namespace tandem::report
