// The slider above the curves of a set: an exponential moving average over their points. What was measured stays, faint.
for (const control of document.querySelectorAll(".smoothing")) {
  const slider = control.querySelector("input");
  const smooth = () => {
    control.querySelector("output").value = slider.value;
    for (const curve of control.nextElementSibling.querySelectorAll("[id*='-curve']")) draw(curve, Number(slider.value));
  };
  slider.addEventListener("input", smooth);
  control.hidden = false;
  smooth();  // a browser may remember where the slider stood
}

function draw(curve, weight) {
  curve.querySelector(".average")?.remove();
  for (const part of curve.children) part.style.opacity = weight ? 0.25 : "";
  if (!weight) return;
  const measured = curve.querySelector("path"), average = measured.cloneNode();
  average.classList.add("average");
  average.style.opacity = "";
  average.setAttribute("d", averaged(measured.getAttribute("d"), weight, Number(curve.closest("svg").dataset.efold)));
  curve.append(average);
}

// A path with its heights averaged; on a logarithmic axis, on which a factor of e is `efold` high, the values they mean.
function averaged(path, weight, efold) {
  const value = efold ? height => Math.exp(-height / efold) : height => height;
  const height = efold ? value => -efold * Math.log(value) : value => value;
  let sum = 0, weights = 0;
  return path.replace(/(-?[\d.]+) (-?[\d.]+)/g, (_, x, y) => {
    sum = weight * sum + (1 - weight) * value(Number(y));
    weights = weight * weights + 1 - weight;
    return `${x} ${height(sum / weights)}`;
  });
}
