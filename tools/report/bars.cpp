#include "tools/report/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tools/report/html.h"

namespace tandem::report {

namespace {

constexpr double kSize = 1000.0;  ///< of the SVG's own coordinates

double sum(const StackedBar& bar) {
  return std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0);
}

std::string bar_svg(const StackedBar& bar, double scale) {
  std::string svg = fmt::format(
      "<svg class=\"bar\" viewBox=\"0 0 {} 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
      kSize);
  double at = 0.0;
  for (std::size_t part = 0; part < bar.parts.size(); ++part) {
    const double width = kSize * bar.parts[part] / scale;
    svg += fmt::format("<rect class=\"p{}\" x=\"{:.2f}\" width=\"{:.2f}\" height=\"1\"/>", part, at,
                       width);
    at += width;
  }
  return svg + "</svg>";
}

}  // namespace

std::string stacked_bars(const std::string& title, const std::vector<std::string>& part_names,
                         const std::vector<StackedBar>& bars, std::string (*total)(double)) {
  double longest = 0.0;
  for (const StackedBar& bar : bars) {
    longest = std::max(longest, sum(bar));
  }
  if (!(longest > 0.0)) {
    return "";
  }
  std::string html = fmt::format(
      "<figure class=\"bars\"><figcaption><h3>{}</h3></figcaption>"
      "<p class=\"legend\">",
      escape(title));
  for (std::size_t part = 0; part < part_names.size(); ++part) {
    html += fmt::format("<span><i class=\"p{}\"></i>{}</span> ", part, escape(part_names[part]));
  }
  html += "</p>\n";
  for (const StackedBar& bar : bars) {
    html += fmt::format(
        "<div class=\"row\"><span class=\"name\">{}</span>{}<span class=\"sum\">{}"
        "</span></div>\n",
        escape(bar.name), bar_svg(bar, longest), escape(total(sum(bar))));
  }
  return html + "</figure>\n";
}

std::string cell_bar(double share) { return bar_svg({"", {std::clamp(share, 0.0, 1.0)}}, 1.0); }

}  // namespace tandem::report
